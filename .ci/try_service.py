"""Start the installed service, let it ask and be answered over HTTP, and stop it: it has only what it brings."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx

service = subprocess.Popen(
    [sys.executable, "-P", "-m", "upcall", "serve", "--port", "0", "--model", "demo"], stdout=subprocess.PIPE, text=True
)
try:
    assert service.stdout is not None
    url, _, token = service.stdout.readline().strip().partition("/login?token=")
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as api:
        assert api.get("/healthz").json() == {"status": "ok"}
        run_id = api.post("/api/runs", json={"task": "Build me a user authentication system"}).json()["run_id"]
        while not (asked := api.get("/api/questions").json()["questions"]):
            time.sleep(0.2)
        api.post(f"/api/runs/{run_id}/answers", json={"answers": {asked[0]["id"]: "Express"}}).raise_for_status()
        while (status := api.get(f"/api/runs/{run_id}").json()["status"]) == "executing":
            time.sleep(0.2)
        assert status == "completed", status
        assert api.get("/runs", headers={"Accept": "text/html"}).status_code == 200
finally:
    service.terminate()
    service.wait(timeout=30)
sys.stdout.write("The installed service took a run to its end.\n")
