"""What users write: TOML read once, sections, overlays. One style, one way to be wrong."""
