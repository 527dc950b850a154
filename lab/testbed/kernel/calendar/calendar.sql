-- The data of the event calendar: the same on every machine. Statements end with a semicolon and an empty line.

CREATE TABLE events (id int PRIMARY KEY, title text NOT NULL, place text NOT NULL, starts date NOT NULL, about text NOT NULL);

CREATE TABLE tags (tag text NOT NULL, event int NOT NULL REFERENCES events);

CREATE TABLE comments (event int NOT NULL REFERENCES events, said text NOT NULL);

CREATE TABLE visits (event int NOT NULL, at timestamptz NOT NULL DEFAULT now());

INSERT INTO events SELECT n, 'Event ' || n, 'Hall ' || n % 37, date '2026-01-01' + n % 365,
  (SELECT string_agg(md5(n || ' ' || k), ' ') FROM generate_series(1, 12) k) FROM generate_series(0, 499) n;

INSERT INTO tags SELECT 'tag' || (7 * n + 13 * k) % 50, n FROM generate_series(0, 499) n, generate_series(1, 5) k;

INSERT INTO comments SELECT n, 'said ' || md5(n || '-' || k) FROM generate_series(0, 499) n, generate_series(1, 10) k;

CREATE INDEX ON events (starts);

CREATE INDEX ON tags (tag);

CREATE INDEX ON comments (event);

VACUUM ANALYZE;

