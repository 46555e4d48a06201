#!/usr/bin/env python3
"""Prints every SQL text of the program, each followed by a NUL: sql_texts.py SOURCE_ROOT.

The texts are string literals, put together by the preprocessor: whatever begins like a statement in its output is one."""
import ast
import glob
import os
import re
import subprocess
import sys

FOLDERS = ["port", "model", "pipe", "api"]
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
STATEMENT = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH) ")


def preprocessed(path, root):
    includes = ["src", "/usr/share/include/llhttp", "/usr/local/share/include/llhttp"]
    command = ["cc", "-E", "-P", "-D_GNU_SOURCE", '-DFANTAIL_VERSION=""'] + ["-I" + i for i in includes] + [path]
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout


def main():
    root = sys.argv[1]
    found = {}
    for folder in FOLDERS:
        for path in sorted(glob.glob(os.path.join(root, "src", folder, "*.c"))):
            for literals in LITERALS.findall(preprocessed(path, root)):
                text = "".join(ast.literal_eval(one) for one in LITERAL.findall(literals))
                if STATEMENT.match(text):
                    found.setdefault(text, os.path.relpath(path, root))
    for text, path in found.items():
        sys.stdout.write("/* %s */ %s\0" % (path, text))


main()
