"""Tools: functions that a model may call, their declaration in the prompt, the grammar of calls, and their parser."""
