"""Workloads: one definition per family, its weights and readings; files, graphs, quotes."""

from __future__ import annotations

from pathlib import Path

from postroad.settings.sections import Section
from postroad.workloads.model import Bad, Workload, refuse

KINDS = ("generate", "followed", "social", "quotes")


def read(
    section: Section, folder: Path, brokers: tuple[str, ...], seed: int, bad: Bad = refuse
) -> Workload:
    """The workload that a table `workload` describes: a family's settings, or files or lists."""
    from postroad.workloads import files, followed, generated, quotes, social

    for kind in KINDS:
        if kind not in section.values:
            continue
        inner = section.section(kind)
        section.done()
        match kind:
            case "generate":
                return generated.workload(inner.configure(generated.Generated), len(brokers), seed)
            case "followed":
                return followed.workload(inner.configure(followed.Followed), len(brokers), seed)
            case "social":
                settings = inner.configure(social.Social)
                return social.workload(settings, folder, len(brokers), seed, bad)
            case _:
                listed = inner.configure(quotes.Quotes)
                return quotes.read(listed, folder, len(brokers), seed, bad)
    names = files.names_of(section)
    tables = {name: files.rows(section, name, folder, names) for name in files.TABLES}
    section.done()
    workload = files.workload(tables, brokers, bad)
    names.check()
    return workload
