"""How the matrices of a model are cut into units of the dequant cache."""

from collections.abc import Iterable, Iterator

from worker.dequant_cache import WeightMatrix, WeightUnit


class UnitPlan:
    """Units in the order in which a step visits them, and where each matrix is among them.

    Attributes:
        units: all of them.
    """

    units: list[WeightUnit]

    def __init__(self) -> None:
        self.units = []
        self._places: dict[WeightMatrix, tuple[int, int]] = {}

    def add(self, name: str, matrices: Iterable[WeightMatrix]) -> None:
        """Append the matrices of a layer, or of a slice of the output head."""
        matrices = list(matrices)
        first = len(self.units)
        alone = [matrix for matrix in matrices if matrix.experts is None]
        self._places |= {matrix: (first, index) for index, matrix in enumerate(alone)}
        first += bool(alone)
        for matrix in matrices:
            if matrix.experts is not None:
                self._places[matrix] = first, 0
                first += matrix.experts
        self.units += layer_units(name, matrices)

    def place(self, matrix: WeightMatrix) -> tuple[int, int]:
        """The unit of a matrix and its index in it; of experts, those of the first one.

        The units of the other experts follow in order.
        """
        return self._places[matrix]


def layer_units(name: str, matrices: Iterable[WeightMatrix]) -> Iterator[WeightUnit]:
    """Cut a layer: matrices that stand alone together, then each matrix of each expert."""
    matrices = list(matrices)
    alone = tuple(matrix for matrix in matrices if matrix.experts is None)
    if alone:
        yield WeightUnit(name, alone)
    for matrix in matrices:
        for expert in range(matrix.experts or 0):
            yield WeightUnit(f"{name}, expert {expert}", (matrix.of_expert(expert),))
