"""Workers: processes on any number of machines that advance submitted runs from pause to pause, over PostgreSQL.

procrastinate provides the queue, its notifications, periodic tasks and signs of life; `upcall.execution` works on the
runs, as everywhere else.
"""
