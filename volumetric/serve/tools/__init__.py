"""Tools: functions that a model may call, how it is told of them and held to their form, and how calls are read."""
