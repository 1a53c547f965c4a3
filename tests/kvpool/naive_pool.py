"""A block pool that walks lists: the twin of ``kvpool.block_pool.BlockPool``."""


class NaiveBlockPool:
    """One record a block, searched from end to end at every question."""

    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.holders = [0] * num_blocks
        self.keys = [None] * num_blocks
        self.blank = []  # given back without a key, the newest last
        self.untouched = list(range(num_blocks))
        self.idle = []  # given back with a key, the oldest first

    @property
    def num_free(self):
        """Blocks nobody holds."""
        return self.holders.count(0)

    def take(self, count):
        """Blank ones, the newest first; untouched ones; idle ones, the oldest first."""
        taken = []
        for _ in range(count):
            if self.blank:
                block = self.blank.pop(-1)
            elif self.untouched:
                block = self.untouched.pop(0)
            else:
                block = self.idle.pop(0)
                self.keys[block] = None
            self.holders[block] = 1
            taken.append(block)
        return taken

    def retain(self, block):
        """One holder more; an idle block is idle no longer."""
        if block in self.idle:
            self.idle.remove(block)
        self.holders[block] += 1

    def release(self, block):
        """One holder less."""
        self.holders[block] -= 1
        if not self.holders[block]:
            (self.blank if self.keys[block] is None else self.idle).append(block)

    def publish(self, block, key):
        """The first block of a key keeps it."""
        if self.keys[block] is None and key not in self.keys:
            self.keys[block] = key

    def find(self, key):
        """The block of a key."""
        return self.keys.index(key) if key in self.keys else None
