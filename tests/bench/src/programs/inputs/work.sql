-- sqlite3 at work: tables that grow by one large statement and by thousands of small ones, indexes, joins, groups, JSON,
-- updates, deletes. Prints the same lines each time, on a database in memory and on one in a file; `scripts.rs` knows which
-- and writes `statements.sql`.
PRAGMA synchronous = OFF;
PRAGMA temp_store = MEMORY;
BEGIN;
CREATE TABLE shelf (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, worth INTEGER NOT NULL, shelf INTEGER NOT NULL);
CREATE TABLE note (id INTEGER PRIMARY KEY, item INTEGER NOT NULL, words TEXT NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO shelf SELECT i, 'shelf ' || i FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO item SELECT i, printf('item %d %s', i % 977, hex(zeroblob(i % 40))), i, i * 7919 % 1000 FROM n;
CREATE INDEX by_name ON item (name, worth);
CREATE INDEX by_shelf ON item (shelf);
COMMIT;
SELECT count(*), sum(worth) FROM item;

-- One statement after another, each parsed, planned and forgotten.
BEGIN;
.read statements.sql
COMMIT;
SELECT count(*), sum(length(words)) FROM note;
SELECT sum(length(words)) FROM item JOIN note ON note.item = item.id WHERE item.worth % 2 = 0;

SELECT count(*), sum(total) FROM (
    SELECT shelf.name, sum(worth) AS total FROM item JOIN shelf ON shelf.id = item.shelf GROUP BY shelf.name ORDER BY total);
SELECT count(*), sum(length(names)) FROM (SELECT group_concat(name) AS names FROM item GROUP BY shelf % 50);
UPDATE item SET name = upper(name) || ' changed' WHERE id % 7 = 0;
DELETE FROM item WHERE id % 3 = 0;
SELECT count(*), sum(worth) FROM item;
SELECT count(*) FROM item a JOIN item b ON b.id = a.id + 1;
SELECT sum(json_extract(value, '$.worth')) FROM json_each((
    SELECT json_group_array(json_object('worth', worth, 'name', name)) FROM item));
