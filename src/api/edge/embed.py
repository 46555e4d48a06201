"""Makes a C string of a text file: embed.py INPUT OUTPUT NAME."""
import json
import sys

source, output, name = sys.argv[1:]
with open(source, encoding='utf-8') as text, open(output, 'w', encoding='utf-8') as out:
    lines = '\n'.join(json.dumps(line, ensure_ascii=False) for line in text)
    out.write(f'extern const char {name}[];\nconst char {name}[] =\n{lines};\n')
