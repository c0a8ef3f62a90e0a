"""Slips that a type checker tells before a program runs: each line that ends in `# wrong` has one, and no other has."""

from upcall import Run, Upcall


async def slip(app: Upcall, run: Run) -> None:
    await app.start(5)  # wrong
    await app.start("Build it", users="alice")  # wrong
    await app.start("Build it", on_expiry="sometimes")  # wrong
    await app.start("Build it", documents=5)  # wrong
    await app.answer(run, "Express")  # wrong
    await app.answer(run.id, 2.5)  # wrong
    await app.answer(run.id, {2: "Express"})  # wrong
    await app.list(limit="5")  # wrong
    run.status = "completed"  # wrong
    str(run.results)  # wrong
    Upcall("gpt-4o")  # wrong
    Upcall(store=5)  # wrong
    async for item in app.start_stream("Build it"):
        str(item.result)  # wrong
