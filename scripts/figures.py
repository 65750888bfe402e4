"""Draw the figures of a run from their tables, as SVG and PNG."""

from inspect import signature

import _job
import _tables
from toposcale import figures
from toposcale.analysis.series import headline_metric
from toposcale.figures import configurations, panels, style


@_job.script
def main(snakemake):
    names = snakemake.params.figures
    tables = _tables.read_inputs(snakemake, {table for name in names for table in figures.FIGURES[name].tables})
    for name in names:
        draw = figures.load(name)
        whole = {table: tables[table] for table in figures.FIGURES[name].tables}
        drawn = configurations.by_configuration(whole) if figures.FIGURES[name].of == "run" else dict(whole)
        note = configurations.note(whole, drawn)
        if "metric" in signature(draw).parameters:
            measured = set().union(*(table["metric"] for table in drawn.values() if "metric" in table))
            chosen = headline_metric(measured, snakemake.params.tasks)
            # Without a loss the verdicts are about the first chosen task, and so is the figure.
            if chosen != headline_metric(measured):
                drawn["metric"] = chosen
        figure = draw(**drawn)
        if note:
            panels.add_note(figure, [figure.get_supxlabel(), note])
        style.save(figure, snakemake.output[name], dpi=snakemake.params.dpi)
