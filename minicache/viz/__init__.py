"""Pictures: pure functions from a small state to an SVG string, and widgets around them."""
