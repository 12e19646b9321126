"""The texts of documents, one module for each family of formats. The child processes of files.py run them.

limits      what a document may have, and the text that is gathered within it
kinds       which format the bytes of a file are in
packages    checks of a ZIP package before anything in it is read
office      docx, xlsx, pptx
pdf_pages   the text layer of PDF
web_page    HTML
"""
