"""Why a publication did or did not reach a subscriber, and why a filter gets nothing."""
