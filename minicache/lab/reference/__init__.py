"""What a lesson falls back on where the engine has no function of that shape of its own."""
