-- sqlite3 at work: a table that grows, an index, updates, deletes, a join, JSON, VACUUM, the integrity check.
-- Prints its results line by line; the test `sqlite3` in tests/tests/programs.rs knows what they must be.
PRAGMA journal_mode = WAL;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, worth INTEGER NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
    INSERT INTO item SELECT i, printf('item %d %s', i % 977, hex(zeroblob(i % 50))), i FROM n;
CREATE INDEX by_name ON item (name, worth);
SELECT count(*), sum(worth) FROM item;
UPDATE item SET name = name || ' changed' WHERE id % 7 = 0;
DELETE FROM item WHERE id % 3 = 0;
SELECT count(*), sum(worth) FROM item;
SELECT count(*) FROM item a JOIN item b ON b.id = a.id + 1;
SELECT sum(json_extract(value, '$.w')) FROM (
    SELECT json_each.value FROM json_each((SELECT json_group_array(json_object('w', worth)) FROM item WHERE id <= 30000)));
VACUUM;
PRAGMA integrity_check;
