<?php
// The next events after a day: light.
require 'calendar.php';
$events = rows("SELECT id, title, place, starts FROM events WHERE starts >= date '2026-01-01' + ?::int ORDER BY starts, id LIMIT 20", [item() % 300]);
page('Events', listed($events));
