"""Draw the figures of a run from their tables, as SVG and PNG, and as PDF if asked for."""

import _job
import _tables
from toposcale import figures
from toposcale.figures import configurations, panels, style


@_job.script
def main(snakemake):
    names = snakemake.params.figures
    tables = _tables.read_inputs(snakemake, {table for name in names for table in figures.FIGURES[name].tables})
    for name in names:
        entry = figures.FIGURES[name]
        whole = {table: tables[table] for table in entry.tables}
        drawn = configurations.by_configuration(whole) if entry.of == "run" else whole
        figure = figures.load(name)(**drawn, **{setting: snakemake.params[setting] for setting in entry.settings})
        if note := configurations.note(whole, drawn):
            panels.add_note(figure, [figure.get_supxlabel(), note])
        style.save(figure, snakemake.output[name], pdf=snakemake.params.pdf)
