"""Makes the C source of the schema from its steps: schema.py FOLDER OUTPUT DEPFILE.

A step is a file NNNN-name.sql of FOLDER, written once for both databases, in SQLite's words. PostgreSQL gets it with the
words below replaced, and with what stands in comments like /*postgres WITH (fillfactor = 50) */ as text. Every other
comment is left out. A table with /*process*/ behind its opening parenthesis tells of running processes: it is not copied.

Besides the steps, the output lists the tables that all steps together leave, with their columns (see ../schema.h)."""
import os
import re
import sys

POSTGRES = [(r'\bINTEGER\b', 'BIGINT'), (r'\bTEXT\b', 'TEXT COLLATE "C"'), (r'\bBLOB\b', 'BYTEA'), (r' WITHOUT ROWID\b', '')]
KINDS = {'INTEGER': 'SCHEMA_NUMBER', 'TEXT': 'SCHEMA_TEXT', 'BLOB': 'SCHEMA_BYTES'}


def tidy(text):
    """The statements, each in one line and without comments. No literal holds a semicolon or a comment."""
    text = re.sub(r'/\*.*?\*/|--[^\n]*', '', text, flags=re.S)
    return [' '.join(s.split()) for s in text.split(';') if s.strip()]


def for_postgres(source):
    source = re.sub(r'/\*postgres\s(.*?)\*/', r'\1', re.sub(r'--[^\n]*', '', source), flags=re.S)
    for word, theirs in POSTGRES:
        source = re.sub(word, theirs, source)
    return tidy(source)


def column(text):
    name, kind = text.split()[:2]
    return name, KINDS[kind]


def apply(statement, tables):
    """What a statement does to the tables."""
    if made := re.match(r'CREATE TABLE (\w+) \((.*)\)', statement):
        parts = re.split(r', (?![^(]*\))', made[2].strip())
        tables[made[1]] = [column(p) for p in parts if not re.match(r'(PRIMARY KEY|UNIQUE) \(', p)]
    elif added := re.match(r'ALTER TABLE (\w+) ADD COLUMN (.*)', statement):
        tables[added[1]].append(column(added[2]))
    elif cut := re.match(r'ALTER TABLE (\w+) DROP COLUMN (\w+)', statement):
        tables[cut[1]] = [c for c in tables[cut[1]] if c[0] != cut[2]]
    elif dropped := re.match(r'DROP TABLE (\w+)', statement):
        del tables[dropped[1]]
    elif re.match(r'(ALTER|CREATE) TABLE', statement):
        raise SystemExit(f'schema.py does not know what this does: {statement}')


def literal(statements):
    return '\n'.join('     ' + '"%s;\\n"' % s.replace('\\', '\\\\').replace('"', '\\"') for s in statements)


def main(folder, output, depfile):
    names = sorted(n for n in os.listdir(folder) if n.endswith('.sql'))
    tables, of_process, steps = {}, set(), []
    for number, name in enumerate(names, 1):
        if int(name.split('-')[0]) != number:
            raise SystemExit(f'schema.py: {name} should be step {number}')
        with open(os.path.join(folder, name), encoding='utf-8') as f:
            source = f.read()
        of_process.update(re.findall(r'CREATE TABLE (\w+) \( /\*process\*/', source))
        for statement in tidy(source):
            apply(statement, tables)
        steps.append((number, literal(tidy(source)), literal(for_postgres(source))))
    with open(output, 'w', encoding='utf-8') as f:
        f.write('/* Made by schema/schema.py. */\n#include "db/schema.h"\n\n')
        for table, columns in sorted(tables.items()):
            f.write('static const struct schema_column %s[] = {%s};\n' %
                    (table, ', '.join('{"%s", %s}' % c for c in columns)))
        f.write('\nconst struct schema_table schema_tables[] = {\n')
        for table, columns in sorted(tables.items()):
            f.write('    {"%s", %s, %d, %s},\n' % (table, table, len(columns), str(table in of_process).lower()))
        f.write('};\nconst size_t schema_table_count = %d;\n\nconst struct schema_step schema_steps[] = {\n' % len(tables))
        for number, sqlite, postgres in steps:
            f.write('    {%d,\n%s,\n%s},\n' % (number, sqlite, postgres))
        f.write('};\nconst size_t schema_step_count = %d;\n' % len(steps))
    with open(depfile, 'w', encoding='utf-8') as f:
        paths = [folder] + [os.path.join(folder, n) for n in names]
        f.write('%s: %s\n' % (output, ' '.join(p.replace(' ', '\\ ') for p in paths)))


main(*sys.argv[1:])
