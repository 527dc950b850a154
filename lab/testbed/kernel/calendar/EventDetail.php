<?php
// An event with its comments and its poster. The visit is kept, which waits for the disk.
require 'calendar.php';
$item = item();
$event = rows('SELECT title, place, starts, about FROM events WHERE id = ?', [$item])[0];
$comments = rows('SELECT said FROM comments WHERE event = ?', [$item]);
rows('INSERT INTO visits (event) VALUES (?)', [$item]);
$said = '';
foreach ($comments as $c) {
    $said .= '<p>' . htmlspecialchars($c['said']) . '</p>';
}
$poster = base64_encode(file_get_contents(__DIR__ . '/poster.jpg'));
page($event['title'], "<p>{$event['place']}, {$event['starts']}</p><p>{$event['about']}</p>$said<img src=\"data:image/jpeg;base64,$poster\">");
