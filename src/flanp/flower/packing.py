"""Compressed messages on the wire: few different numbers, or few that are not zero."""

import numpy as np

DENSE, PLACES, VALUES, CODES, TABLE = "m", "m.places", "m.values", "m.codes", "m.table"


def pack(m: np.ndarray) -> dict[str, np.ndarray]:
    """Return a vector as the smallest of: itself, its nonzero entries, codes into a table.

    Nothing is lost: compression has made the vector such that it packs well.

    >>> packed = pack(np.repeat(np.float32([0.0, 1.0, -1.0]), 100))
    >>> sorted(packed), sum(a.nbytes for a in packed.values())
    (['m.codes', 'm.table'], 87)
    """
    places = np.flatnonzero(m).astype(np.uint32)
    forms = [{DENSE: m}, {PLACES: places, VALUES: m[places]}]
    table, codes = np.unique(m, return_inverse=True)
    if len(table) <= 2**16:
        bits, codes = code_bits(len(table)), codes.ravel().astype(np.uint16)
        spread = np.empty((len(m), bits), np.uint8)
        for j in range(bits):
            spread[:, j] = (codes >> (bits - 1 - j)) & 1
        forms.append({TABLE: table, CODES: np.packbits(spread.ravel())})
    return min(forms, key=lambda form: sum(a.nbytes for a in form.values()))


def unpack(arrays: dict[str, np.ndarray], size: int) -> np.ndarray:
    """Return the vector of so many numbers that was packed; raise ValueError if it is none."""
    if DENSE in arrays:
        return arrays[DENSE]
    if PLACES in arrays and VALUES in arrays:
        places, values = arrays[PLACES], _floats(arrays[VALUES], size)
        fits = places.dtype == np.uint32 and places.shape == values.shape
        if not fits or (places >= size).any():
            raise ValueError("its places do not fit the model")
        m = np.zeros(size, values.dtype)
        m[places] = values
        return m
    if TABLE in arrays and CODES in arrays:
        table, packed = _floats(arrays[TABLE], 2**16), arrays[CODES]
        bits = code_bits(len(table))
        if packed.dtype != np.uint8 or packed.shape != (-(-size * bits // 8),):
            raise ValueError("its codes do not fit the model")
        spread = np.unpackbits(packed, count=size * bits).reshape(size, bits)
        codes = np.zeros(size, np.uint32)
        for j in range(bits):
            codes = (codes << np.uint32(1)) | spread[:, j].astype(np.uint32)
        if (codes >= len(table)).any():
            raise ValueError("its codes are not in its table")
        return table[codes]
    raise ValueError("it holds no message")


def _floats(a: np.ndarray, most: int) -> np.ndarray:
    """Refuse what would not be a vector of at most so many floats."""
    if a.ndim != 1 or a.dtype not in (np.float32, np.float64) or len(a) > most:
        raise ValueError(f"{a.dtype}{list(a.shape)} is not a vector of up to {most} floats")
    return a


def code_bits(count: int) -> int:
    """Return how many bits tell so many numbers apart."""
    return max(1, (count - 1).bit_length())
