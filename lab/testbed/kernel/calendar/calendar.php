<?php
// What the pages share: the connection to the database, and the frame around their content.

function rows(string $query, array $values): array {
    static $database = null;
    $database ??= new PDO('pgsql:host=' . getenv('CALENDAR_DATABASE') . ';user=lab;dbname=postgres', null, null,
        [PDO::ATTR_PERSISTENT => true, PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    $statement = $database->prepare($query);
    $statement->execute($values);
    return $statement->fetchAll(PDO::FETCH_ASSOC);
}

function item(): int {
    return abs((int) ($_GET['item'] ?? 0)) % 500;
}

function page(string $title, string $content): void {
    echo '<!doctype html><html><head><title>', $title, '</title></head><body><h1>', $title, '</h1>', $content, "</body></html>\n";
}

function listed(array $events): string {
    $lines = '';
    foreach ($events as $e) {
        $lines .= sprintf('<li><a href="EventDetail.php?item=%d">%s</a>, %s, %s</li>', $e['id'], htmlspecialchars($e['title']),
            htmlspecialchars($e['place']), $e['starts']);
    }
    return "<ul>$lines</ul>";
}
