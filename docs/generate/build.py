"""Build the site into site/: `make docs`. Every block that is marked to run is run; a block that fails, a warning or a
broken link ends the build with what is wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"


class _Links(HTMLParser):
    """Targets and anchors of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {v for v in (values.get("id"), values.get("name") if tag == "a" else None) if v}
        self.links += [v for v in (values.get("href"), values.get("src")) if v]


def broken(site: Path = SITE) -> list[str]:
    """Links within the built site that lead nowhere, and what a page would fetch from elsewhere."""
    pages = {}
    for file in site.rglob("*.html"):
        pages[file.resolve()] = _Links()
        pages[file.resolve()].feed(file.read_text())
    wrong = []
    for file, page in pages.items():
        name = file.relative_to(site.resolve())
        if name.name == "404.html":
            continue  # its links are of the server's root
        for link in page.links:
            path, anchor = urldefrag(link)
            if re.match(r"(https?|mailto|data|javascript):|//", path):
                continue
            target = (file.parent / unquote(path.partition("?")[0])).resolve() if path else file
            if not target.exists():
                wrong.append(f"{name}: {link} leads to no file")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                wrong.append(f"{name}: {link} has no such place")
        fetched = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]+)\"", file.read_text())
        wrong += [f"{name}: fetches {url}" for url in fetched if 'rel="canonical"' not in url]
    return sorted(set(wrong))


def main() -> int:
    started = time.monotonic()
    shutil.rmtree(SITE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT / "src")]),
            "MULTUM_DOCS": scratch,
            "MULTUM_AUTOTUNE": "0",
            "COLUMNS": "100",
        }
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(ROOT / "mkdocs.yml")]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            print(line, end="", flush=True)
        code = process.wait()
    failed = [line for line in said if "code block" in line and "exited with" in line]
    wrong = broken()
    for line in wrong:
        print(line)
    pages = len(list(SITE.rglob("*.html")))
    print(
        f"{pages} pages in {time.monotonic() - started:.0f} s, {len(failed)} failed blocks, {len(wrong)} broken links"
    )
    return 1 if code or failed or wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
