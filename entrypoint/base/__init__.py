"""The foundations that every package may use: values, texts, tables, errors, the wire, the
folders of adapters."""

EFFECTS = ("registry", "render", "kept")
