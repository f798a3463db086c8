"""`burnish report`: one self-contained HTML file, and the same facts in short for the terminal (`terminal.py`).

The page needs no network and runs no script (its own policy forbids both), so it can be mailed and archived. Model
output inside it is text and nothing else.
"""

from pathlib import Path

from burnish.files import write_whole
from burnish.observe import sections
from burnish.observe.markup import esc
from burnish.observe.record import RunRecord, read_run
from burnish.observe.style import CSS
from burnish.observe.terminal import render_terminal

__all__ = ["REPORT_FILE", "render_html", "render_terminal", "write_report"]

REPORT_FILE = "report.html"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(run_dir: Path) -> Path:
    """Writes RUN/report.html, whole or not at all, and returns its path.

    Raises:
        UserError: `run_dir` is no run directory.
        StoreError: a file of the run is damaged, or the report cannot be written.
    """
    page = render_html(read_run(run_dir))
    target = run_dir / REPORT_FILE
    write_whole(target, page)
    return target


def render_html(record: RunRecord) -> str:
    """The page as text."""
    title = esc(record.fact("run") or record.path.name)
    body = "\n".join(section(record) for section in sections.SECTIONS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · burnish</title>
<style>{CSS}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
