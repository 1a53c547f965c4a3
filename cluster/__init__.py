"""The distributed job: dataset, shard plan, driver, Ray actors and the commit protocol."""
