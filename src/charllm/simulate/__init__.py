"""The closed loop: execution, power, heat and clocks of every GPU through a step, and the predicted result."""
