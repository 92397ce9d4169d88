"""`penstock doctor` on what users have."""

import gzip
import json
from pathlib import Path

from penstock.dataflow import constant
from tests.cli.running import penstock
from tests.simulator.histories import EVENT_LOG, PROGRESS, a_runtime, journal_of


def test_progress_documents_tell_each_phase(tmp_path: Path):
    ran = penstock("doctor", str(PROGRESS), "--checkpoint", "file:/c", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["checkpoint_store"] == "local"
    hashes = next(q for q in found["queries"] if q["query"] == "hashes")
    assert hashes["parts_ms"]["commits"] > 0
    assert sum(hashes["parts_ms"].values()) >= 0.95 * hashes["total_ms"]
    assert any("checkpointFileManagerClass" in a["setting"] for a in hashes["advice"])


def test_an_event_log_tells_the_same(tmp_path: Path):
    ran = penstock("doctor", str(EVENT_LOG))
    assert ran.code == 0, ran.err
    assert "commits to this checkpoint store" in ran.out
    assert "--checkpoint" in ran.out, "where checkpoints are is asked for"


def test_what_an_event_log_says_is_set_is_not_advised(tmp_path: Path):
    key = "spark.sql.streaming.checkpointFileManagerClass"
    lines = [json.loads(line) for line in gzip.decompress(EVENT_LOG.read_bytes()).splitlines()]
    update = {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {key: "theirs"}}
    log = tmp_path / "log"
    log.write_text("\n".join(json.dumps(line) for line in [*lines[:1], update, *lines[1:]]))
    ran = penstock("doctor", str(log), "--checkpoint", "file:/c")
    assert ran.code == 0, ran.err
    assert key not in ran.out


def test_a_journal_tells_the_whole_and_says_so(tmp_path: Path):
    journal = tmp_path / "runs.sqlite"
    journal_of(journal, a_runtime(constant(200)), for_s=120)
    ran = penstock("doctor", "last", "--journal", str(journal))
    assert ran.code == 0, ran.err
    assert "other" in ran.out
    assert "not known: the phases" in ran.out
