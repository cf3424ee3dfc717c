"""What a JPEG says before its pixels, and how it is told to end early. (ITU-T T.81, annex B.)"""

from __future__ import annotations

from collections.abc import Iterator

BEGINNING, END = b"\xff\xd8\xff", b"\xff\xd9"
APPLICATION_1, SCAN = 0xE1, 0xDA
SEQUENTIAL = (0xC0, 0xC1)  # frames that are not progressive


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, where its content begins, where it ends) up to the pixels, SCAN; or up to where a file cannot
    be followed."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        yield data[place + 1], place + 4, end
        if data[place + 1] == SCAN:
            return
        place = end


def may_be_turned(data: bytes) -> bool:
    """Whether the segments before the pixels hold an EXIF or XMP orientation, or cannot be followed."""
    for marker, start, end in segments(data):
        if marker == SCAN:
            return False
        if marker == APPLICATION_1:
            content = data[start:end]
            if content.startswith(b"Exif\0\0") or b"tiff:Orientation" in content:
                return True
    return True


def ending_at(data: bytes, row: int) -> bytes | None:
    """The same image, said to be only `row` pixels high, so that nothing below is decoded. Its decoder will
    complain of bytes behind the end. None where the image is not one scan, whose rows simply follow each
    other, and where the file has no end: that complaint must not be lost.
    """
    if not data.endswith(END):
        return None
    frame, colors = 0, b""
    for marker, start, _ in segments(data):
        if marker in SEQUENTIAL:  # precision, height (2), width (2), colors
            frame, colors = start, data[start + 5 : start + 6]
        if marker == SCAN and frame and data[start : start + 1] == colors:
            return data[: frame + 1] + row.to_bytes(2) + data[frame + 3 :]
    return None
