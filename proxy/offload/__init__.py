"""Work that may take long or much memory, done in child processes under a deadline and a memory limit.

    pool.py    the event loop's side: starts children, hands them one job at a time, kills those that exceed a limit
    child.py   the child's side: reads a job, runs it, writes its result

A thread does not do: compilers of regular expressions hold the interpreter lock, and no thread can be killed. A job is
the name of a function from bytes to bytes, so that no code object and no pickle crosses the border. Nothing is imported
here, because every child would import it too.
"""
