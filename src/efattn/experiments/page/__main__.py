"""python -m efattn.experiments.page: from results/, write the summary, docs/results.* and the README's table again."""

import re
from pathlib import Path

from efattn import storage
from efattn.experiments import page, records, summary
from efattn.experiments.page import leading_table, markdown
from efattn.experiments.page.results import Results

BETWEEN = re.compile(r"(?<=<!-- results -->\n).*?(?=\n<!-- /results -->)", re.DOTALL)


def into_readme(readme: Path, results: Results) -> None:
    """Put the leading table in its short form between the README's two markers."""
    table = markdown.block(leading_table.brief(results))
    text = BETWEEN.sub(lambda _: table, readme.read_text(encoding="utf-8"))
    with storage.beside(readme) as part:
        part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    folder = Path("results")
    summary.write(folder, records.read(folder))
    page.write(Path("docs"), folder)
    into_readme(Path("README.md"), Results.read(folder))
