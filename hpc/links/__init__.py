"""Links: columns that stay dependent inside clusters. Within a cluster a column may depend on one other column, its
parent (docs/links.md)."""
