"""Writes a text file as a C array: embed.py INPUT OUTPUT NAME."""
import sys

source, target, name = sys.argv[1:]
with open(source, 'rb') as f:
    data = f.read() + b'\0'
lines = [', '.join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
with open(target, 'w') as f:
    f.write('extern const char %s[];\nconst char %s[] = {\n    %s,\n};\n' % (name, name, ',\n    '.join(lines)))
