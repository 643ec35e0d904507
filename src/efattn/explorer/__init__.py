"""A saved model over HTTP, and the page that shows it.

    request  ->  limits  ->  body  ->  question  ->  the engine, as Python and the shell ask it  ->  JSON

`app.application` is the service, `serving.serve` runs it; FastAPI and uvicorn come with the extra `serve`.
"""
