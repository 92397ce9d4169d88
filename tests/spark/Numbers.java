package penstock.tests;

import java.io.File;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/** A driver without Python: copies the lines of FOLDER/in, once as they are and once each different one, until told. */
public class Numbers {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[0];
        SparkSession spark = SparkSession.builder().getOrCreate();
        StreamingQuery all = started(spark, folder, "all", false);
        StreamingQuery different = started(spark.newSession(), folder, "different", true);
        while (!new File(folder, "stop").exists()) Thread.sleep(100L);
        all.processAllAvailable();
        different.processAllAvailable();
        all.stop();
        different.stop();
        spark.stop();
    }

    private static StreamingQuery started(SparkSession spark, String folder, String name, boolean once) throws Exception {
        Dataset lines = spark.readStream().option("maxFilesPerTrigger", 5L).text(folder + "/in");
        DataStreamWriter writer = (once ? lines.dropDuplicates() : lines).writeStream();
        writer.queryName(name).trigger(Trigger.ProcessingTime(500L)).format("text");
        writer.option("checkpointLocation", folder + "/checkpoint-" + name);
        return writer.start(folder + "/" + name);
    }
}
