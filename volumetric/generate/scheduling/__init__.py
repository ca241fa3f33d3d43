"""Parts of the scheduler: jobs, limits, the queue, rows for each call, the calls, memory, prefixes and statistics."""
