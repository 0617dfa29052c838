"""When each op runs on which rank."""
