"""Adds the documents beside README.md to the site, and leads links to other files of the repository there."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
BESIDE = {"README.md": "index.md"} | {name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
LINK = re.compile(r"(\]\(|src=\"|href=\")([^)\s\"#]+)((?:#[^)\s\"]*)?)")


def on_files(files, config):
    for name, page in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    name = next((name for name, shown in BESIDE.items() if shown == page.file.src_uri), None)
    here = posixpath.dirname(name or "docs/" + page.file.src_uri)  # of the document in the repository

    def lead(match):
        before, target, anchor = match.groups()
        if "://" in target or target.startswith(("/", "mailto:")):
            return match[0]
        path = posixpath.normpath(posixpath.join(here, target))
        shown = BESIDE.get(path) or (path[len("docs/"):] if path.startswith("docs/") else None)
        if shown and files.get_file_from_path(shown):
            return before + posixpath.relpath(shown, posixpath.dirname(page.file.src_uri) or ".") + anchor
        if (ROOT / path).exists():
            return f"{before}{config.repo_url}/blob/main/{path}{anchor}"
        return match[0]

    # What is in code is no link.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", markdown, flags=re.M | re.S)
    return "".join(part if i % 2 else LINK.sub(lead, part) for i, part in enumerate(parts))
