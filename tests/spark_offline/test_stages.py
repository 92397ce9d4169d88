"""How a dataflow is cut where Spark shuffles."""

from penstock.dataflow import flow
from penstock.dataflow.connectors import discard, rate
from penstock.spark.query.stages import Stages


def step(record):
    return record


class TestStages:
    def build(self):
        f = flow("stages")
        left = f.source("left", rate(10))
        right = f.source("right", rate(10))
        one = left.keyed("one", step, key="value", state="n long", schema="value long")
        two = right.keyed("two", step, key="value", state="n long", schema="value long")
        both = f.union("both", one, two, right.map("plain", step, schema="value long"))
        both.map("spread", step, wiring="spread").sink("out", discard())
        right.sink("raw", discard())
        return f.build()

    def test_every_keyed_operator_has_its_stage_and_rows_are_used_where_they_are(self):
        flow_ = self.build()
        sinks = [s for sink in flow_.sinks for s in flow_.upstream(sink.id)]
        stages = Stages.of(flow_, sinks)
        assert stages.shuffles == {"one": 1, "two": 2, "both->spread": 3}
        assert stages.runs_in["both"] == {0, 1, 2}
        assert stages.runs_in["spread"] == {3}
        assert stages.last == 3

    def test_only_what_is_upstream_belongs_to_it(self):
        flow_ = self.build()
        stages = Stages.of(flow_, [s for s in flow_.streams if s.id == "right->raw"])
        assert set(stages.runs_in) == {"right"}
        assert stages.last == 0
