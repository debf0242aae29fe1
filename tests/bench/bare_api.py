"""FastAPI without a database, for comparison: it answers a small JSON document and does nothing else."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.get("/api/v1/inventory")
async def inventory() -> dict[str, str]:
    """As little as FastAPI can do."""
    return {"status": "ok"}


def main() -> None:
    """Serve on 127.0.0.1 at the port that is named."""
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
