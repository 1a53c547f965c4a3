from cluster.worker_record import WorkerRecord


def test_a_model_that_arrives_is_told_of_every_half_minute():
    """Not at its beginning, nor while nothing comes."""
    record = WorkerRecord("worker-0", 1)
    figures = [(100.0, 0), (101.0, 5), (120.0, 6), (132.0, 7), (140.0, 8), (170.0, 8), (171.0, 9)]
    told = [now for now, arrived in figures if record.show_arrival(arrived, now)]
    assert [132.0, 171.0] == told
    assert (9, 171.0) == (record.arrived, record.fetched_at)


def test_a_next_file_begins_anew():
    """What had come before is not counted along."""
    record = WorkerRecord("worker-0", 1)
    told = [record.show_arrival(arrived, now) for now, arrived in [(1.0, 9), (50.0, 2), (70.0, 3)]]
    assert [False, False, False] == told
