"""Small PDF files, written by hand: one line of text on each page, or a picture."""

import io

import pypdf

SQUARE = "/Width 2 /Height 2 /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /ASCIIHexDecode"


def scan(*pages: tuple[str, str], box: str = "0 0 612 792", picture: str = SQUARE, extra: str = "") -> bytes:
    """A file whose pages have a line of text each, and four squares of the given colours (hexadecimal), "" for none."""
    contents = []
    for number, (line, colours) in enumerate(pages):
        words = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET\n" if line else ""
        contents.append(words + (f"q 200 0 0 200 72 72 cm {extra} /P{number} Do Q" if colours else ""))
    pictures = [
        f"<< /Type /XObject /Subtype /Image {picture} /Length {len(colours) + 1} >>\nstream\n{colours}>\nendstream"
        for _, colours in pages
    ]
    names = " ".join(f"/P{number} {4 + 2 * len(pages) + number} 0 R" for number in range(len(pages)))
    return _written(contents, pictures, f"/XObject << {names} >>", box)


def pdf(*lines: str) -> bytes:
    """A file with one page per line."""
    return _written([f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET" if line else "" for line in lines], [], "", "0 0 612 792")


def _written(contents: list[str], others: list[str], resources: str, box: str) -> bytes:
    count = len(contents)
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, content in enumerate(contents):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{box}] /Contents {5 + 2 * index} "
            f"0 R /Resources << /Font << /F1 3 0 R >> {resources} >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects += others
    body, offsets = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def encrypted_pdf(password: str) -> bytes:
    writer = pypdf.PdfWriter(io.BytesIO(pdf("secret")))
    writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
