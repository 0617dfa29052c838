"""Many runs at once: studies as axes, and the runners that work through them."""
