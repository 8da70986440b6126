"""The command `mpibayes schema`: every key of the configuration, as text or as JSON schema."""

from __future__ import annotations

import click


@click.command(short_help="List every key of the configuration, or write its JSON schema.")
@click.option("--json", "as_json", is_flag=True, help="JSON schema (draft 7), for editors and other programs.")
def schema(as_json):
    """List every key of the configuration by family of models: its meaning, default and possible values.

    With --json, write the JSON schema of the TOML file. Editors with Taplo (Even Better TOML) use it to complete and
    check keys where the file begins with the line "#:schema PATH". Configurations that mpibayes writes have that line;
    each run directory has the schema, config.schema.json. `mpibayes check` also checks keys together, and against the
    table.

    \b
    Examples:
      mpibayes schema | less
      mpibayes schema --json > config.schema.json       and "#:schema ./config.schema.json" at the top of run.toml
    """
    if as_json:
        from mpibayes.hpc.config.json_schema import schema_text as text
    else:
        from mpibayes.hpc.config.listing import keys_text as text
    click.echo(text(), nl=False)
