"""What tools for traces and metrics get to see of runs, by OpenTelemetry's API; none of it knows AutoGen.

`spans` makes the spans and their context, `run_spans` those of questions and of the waits for their answers,
`metrics` has the instruments, `export` sends both for a program that has not set up OpenTelemetry itself.
"""
