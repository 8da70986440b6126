"""Links: columns that stay dependent inside clusters. Within every cluster a column may lean on one other column, its
parent (docs/links.md)."""
