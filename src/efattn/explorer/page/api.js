// Requests to this server. A newer question of one kind makes an older one void.

let token = sessionStorage.getItem("efattn-token") || "";
const running = new Map();

export function setToken(word) {
  token = word;
  sessionStorage.setItem("efattn-token", word);
}

async function request(path, options) {
  const headers = { ...(options.headers || {}) };
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers, credentials: "omit", referrerPolicy: "no-referrer" });
  let told = null;
  try {
    told = await answer.json();
  } catch (error) {
    if (answer.ok || error.name === "AbortError") throw error; // a body that was cut off is no answer
    told = { error: { kind: "answer", text: `The server answered ${answer.status}.` } };
  }
  if (!answer.ok) throw Object.assign(new Error(told.error ? told.error.text : `${answer.status}`), { status: answer.status });
  return told;
}

export const get = (path) => request(path, {});

// null where a newer question of the same kind came meanwhile
export async function ask(model, verb, body, kind = verb) {
  const before = running.get(kind);
  if (before) before.abort();
  const stop = new AbortController();
  running.set(kind, stop);
  try {
    return await request(`/v1/models/${encodeURIComponent(model)}/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: stop.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") return null;
    throw error;
  } finally {
    if (running.get(kind) === stop) running.delete(kind);
  }
}
