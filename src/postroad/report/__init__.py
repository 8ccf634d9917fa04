"""Pages and pictures from measured tables; no arithmetic beyond formatting."""
