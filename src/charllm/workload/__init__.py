"""What each rank executes and keeps: the ops of a step, by layer and stage, and the memory they need."""
