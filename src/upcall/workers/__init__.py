"""Workers: processes on any number of machines that take submitted runs from pause to pause, over PostgreSQL.

The queue, its notifications, periodic tasks and signs of life are procrastinate's; what is done with a run is
`upcall.execution`'s, as everywhere else.
"""
